//! The shop's doors: three addresses, in JSON.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use gen_durable::Delivery;
use serde_json::json;

use crate::shop::{NewOrder, NewPayment, Refusal, Shop, Standing};
use crate::{tell, with_causes};

pub(crate) fn routes(shop: Shop) -> Router {
    Router::new()
        .route("/orders", post(order))
        .route("/orders/{order}", get(standing))
        .route("/payments/{order}", post(pay))
        .with_state(shop)
}

async fn order(
    State(shop): State<Shop>,
    new: Result<Json<NewOrder>, JsonRejection>,
) -> Result<impl IntoResponse, Refusal> {
    let order = shop.order(read(new)?).await?;
    let status = format!("/orders/{order}");
    let body = Json(json!({ "order": order, "status": status }));
    Ok((StatusCode::CREATED, [(header::LOCATION, status)], body))
}

/// The bank calls this until it is answered with a success, so it may call more often than there are payments.
async fn pay(
    State(shop): State<Shop>,
    Path(order): Path<i64>,
    new: Result<Json<NewPayment>, JsonRejection>,
) -> Result<impl IntoResponse, Refusal> {
    let answer = match shop.pay(order, read(new)?).await? {
        Delivery::Delivered => "received",
        _ => "already received",
    };
    Ok(Json(json!({ "payment": answer })))
}

async fn standing(State(shop): State<Shop>, Path(order): Path<i64>) -> Result<Json<Standing>, Refusal> {
    shop.standing(order).await.map(Json)
}

/// What was sent; problems with it are answered in JSON, too.
fn read<T>(sent: Result<Json<T>, JsonRejection>) -> Result<T, Refusal> {
    sent.map(|Json(sent)| sent).map_err(|rejection| Refusal::Invalid(rejection.body_text()))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Self::NoSuchOrder => (StatusCode::NOT_FOUND, "there is no such order".into()),
            Self::Conflict(problem) => (StatusCode::CONFLICT, problem.into()),
            Self::Invalid(problem) => (StatusCode::UNPROCESSABLE_ENTITY, problem),
            Self::Failed(error) => {
                tell(&format!("checkout: {}", with_causes(&*error)));
                (StatusCode::INTERNAL_SERVER_ERROR, "something is broken here: try again".into())
            }
        };
        (status, Json(json!({ "error": error }))).into_response()
    }
}
